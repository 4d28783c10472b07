// Package nvstate stores the state of simulated NVIDIA GPUs and their driver. It is one file that all
// processes of the machine read: the library (nvdriver) and the driver's programs (nvtools), which
// cannot use the library, because they are linked to nothing.
package nvstate
