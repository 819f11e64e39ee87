"""The lab: networks of namespaces and emulated links on one machine, where everything is shown and measured."""
