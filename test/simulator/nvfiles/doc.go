// Package nvfiles writes the files of a simulated NVIDIA driver: what its packages install,
// its device nodes, and what it shows below /proc and /sys. Containers get them, and
// libraries look for them.
package nvfiles
