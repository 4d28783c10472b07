// Package demand finds what a pod asks for: its claims, what would satisfy each of their
// requests, and what else decides on which nodes the pod can run.
//
// Everything is pure.
package demand
