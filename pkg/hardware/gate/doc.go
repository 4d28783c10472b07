// Package gate admits one task at a time to a piece of hardware, and returns to the caller when a
// call hangs. All calls of all vendors pass through it.
package gate
