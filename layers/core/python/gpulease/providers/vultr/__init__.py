"""Vultr: cloud GPU and bare metal servers and their VPCs, over API v2."""
