// Package nvstate is what simulated GPUs of NVIDIA's, and their driver, remember
// between calls: one file that every process of the machine reads, the library
// (nvdriver) and the programs of the driver (nvtools), which are linked
// to nothing and so cannot use the library.
//
// Imports: pkg/simulate/disk.
package nvstate
