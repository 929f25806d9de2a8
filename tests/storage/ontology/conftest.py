"""Property tests here are about values, never about time: a busy machine must not fail them."""

from hypothesis import HealthCheck, settings

settings.register_profile("values", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("values")
