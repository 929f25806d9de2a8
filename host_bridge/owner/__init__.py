"""One owner per state directory: its lock, its socket, its life, and how other processes reach it.

``address`` where things lie · ``lock`` who owns · ``endpoint`` the socket and whose process is at its other end ·
``client`` reach the owner, starting one on demand · ``spawn`` the detached start · ``server`` all connections
of one owner · ``session`` one of them · ``logs`` its log · ``process`` a whole owner from signal handlers to shutdown.

``address``, ``client``, ``endpoint`` and ``spawn`` import the standard library only, because thin clients load them.
Source: decisions.md section 8.
"""
