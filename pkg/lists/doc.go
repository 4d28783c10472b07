// Package lists has what the package slices of the standard library has not.
package lists
