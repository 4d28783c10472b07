// Package report is what the hardware of a node says at one moment, for people
// and for their scripts. Vendors fill it, the node's plugin adds whose each
// partition is.
//
// Imports: pkg/gpu.
package report
