// Command tranche-hook is run by the container runtime before a container starts that has a share with
// a limit by control group. See package hook.
//
// It may import pkg/hook.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/tranche-dev/tranche/pkg/hook"
)

func main() {
	if err := hook.Run(context.Background(), os.Args[1:], os.Stdin, "/proc"); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", hook.Program, err)
		os.Exit(1)
	}
}
