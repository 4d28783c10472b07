// Package image makes container images from files, without a registry and without a
// container engine. The same content always gives the same bytes: timestamps are
// fixed, entries are sorted, owners are root.
package image
