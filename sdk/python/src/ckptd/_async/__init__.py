"""The async client. tools/make_sync.py makes _sync from it, except net.py."""
