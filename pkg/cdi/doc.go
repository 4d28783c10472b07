// Package cdi writes the Container Device Interface (CDI) files that describe the devices of
// claims to the container runtime. There is one file for each claim, with its UID in the name.
package cdi
