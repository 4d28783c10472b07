// Command tranche-kubelet-plugin publishes the GPUs of a node and turns
// ResourceClaims into partitions of them.
package main

import (
	"github.com/tranche-dev/tranche/cmd/tranche-kubelet-plugin/plugin"
)

// version is set when the program is linked.
var version = "dev"

func main() { plugin.Main(version) }
