// Package cdi writes the Container Device Interface files that tell the
// container runtime what a claim's containers get: one file for each claim, its
// UID in the name.
//
// Imports: none.
package cdi
