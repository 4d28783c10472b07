// Package nvfiles writes the files of a simulated NVIDIA driver: what its packages install,
// its device nodes, and what it shows below /proc and /sys. Containers get them, and
// libraries look for them.
//
// Imports: pkg/publish/models, pkg/program, test/simulator/disk, test/simulator/nvstate,
// test/simulator/nvtools.
package nvfiles
