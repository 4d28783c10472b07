// Package image writes container images as tar archives, without a registry
// and without a container engine. The archives are what `docker save` writes:
// `ctr images import`, `docker load` and `podman load` take them.
//
// The same content always gives the same bytes: timestamps are fixed, entries
// are sorted, owners are root.
package image
