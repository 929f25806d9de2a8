"""host_bridge"""
