// Package preview says which devices claims would have to release for a profile, from the
// node's GPUNode and the tables of GPU models alone: nobody asks the node's plugin. A test
// compares it with the plugin's own plans.
//
// GPUs whose product is not in the tables are listed as unknown. The plugin's plan decides
// when a switch begins.
//
// Everything is pure.
package preview
