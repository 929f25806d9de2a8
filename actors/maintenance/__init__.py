"""Maintenance: looks after every store by a schedule, or when an operator asks; deterministic, no model."""

from actors.maintenance.actor import Maintenance, MaintenanceReport, Pace, RunMaintenance
from actors.maintenance.schedule import Schedule, next_run

__all__ = ["Maintenance", "MaintenanceReport", "Pace", "RunMaintenance", "Schedule", "next_run"]
