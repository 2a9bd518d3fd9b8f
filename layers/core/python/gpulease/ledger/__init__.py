"""Stores for what is true, behind one port: DynamoDB, and SQLite on one computer."""
