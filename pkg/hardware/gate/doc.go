// Package gate lets one task at a time at a piece of hardware, and lets nobody
// wait for a call that hangs. Every vendor's calls go through it.
//
// It knows no vendor.
//
// Imports: none.
package gate
