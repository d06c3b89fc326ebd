"""Connectors to PostgreSQL, by psycopg. The client library is imported when a component opens."""
