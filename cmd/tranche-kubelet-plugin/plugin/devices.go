package plugin

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
)

// deviceNodes are where containers find the GPUs of their claims.
var deviceNodes = []string{"dev/nvidia[0-9]*", "dev/nvidia-caps/*", "dev/kfd", "dev/dri/renderD*"}

// devicesCommand is what `helm test` runs in a container with a claim.
func devicesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "devices",
		Short: "List the device nodes of GPUs in this container; fail if there are none",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return listDevices(cmd.OutOrStdout(), "/") },
	}
}

func listDevices(out io.Writer, root string) error {
	var found []string
	for _, pattern := range deviceNodes {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return fmt.Errorf("look for %s: %w", pattern, err)
		}
		found = append(found, matches...)
	}
	if len(found) == 0 {
		return errors.New("this container has no device node of a GPU: does it have a claim (resources.claims)?")
	}
	slices.Sort(found)
	for _, path := range found {
		fmt.Fprintln(out, path)
	}
	return nil
}
