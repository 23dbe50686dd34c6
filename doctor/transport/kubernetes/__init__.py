"""Pods through the API server of Kubernetes, by kubectl."""
