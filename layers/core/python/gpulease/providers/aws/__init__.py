"""AWS EC2: GPU instances, EBS volumes, and security groups as private networks."""
