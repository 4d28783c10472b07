//go:build !race

package race

// Enabled tells whether the program was built with the race detector.
const Enabled = false
