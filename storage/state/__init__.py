"""The store's database: connection, schema, journal and history."""
