"""Clients and people beside a real owner that is injured and killed, the outcome judged by judges of its own."""
