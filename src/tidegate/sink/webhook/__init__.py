"""An HTTP address as a sink: CloudEvents."""
