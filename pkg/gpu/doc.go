// Package gpu is the vocabulary that every other room shares: GPUs, the ways
// to cut them, what each cut takes from the GPU, and how all of it is named.
//
// It is pure: no files, no hardware, no API server, and it imports nothing of
// this module.
//
// Imports: none.
package gpu
