// Command simulated-nvidia-tools stands in for programs of NVIDIA's driver on
// simulated machines. It is installed by their names, and is the one it is run by.
package main

import (
	"os"

	"github.com/tranche-dev/tranche/test/simulator/nvtools"
)

func main() { os.Exit(nvtools.Main(os.Args)) }
