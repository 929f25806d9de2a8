"""The HTTP door of an owner: imported only when HTTP is served, because its libraries are slow to import."""
