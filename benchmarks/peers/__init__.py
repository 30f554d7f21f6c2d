"""The kill and freeze of the crash matrix for others that make steps durable, side by side with Tracklog."""
