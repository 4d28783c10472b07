// Package load is what programs do on simulated GPUs, as far as drivers measure it: they keep
// compute units busy, and have memory. It is pure.
package load
