package hardwarereport

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
)

// Report describes the GPUs of one node.
type Report struct {
	GPUs []GPU `json:"gpus"`
}

// GPU is one GPU of the node.
type GPU struct {
	// Name is the name of the GPU's device ("gpu-0000-1b-00-0").
	Name string `json:"name"`
	// Problem says what is wrong with the GPU, empty for a healthy one.
	Problem string `json:"problem,omitempty"`
	// Obstacles say what cannot be allocated now, and why: mostly because a process blocks
	// a mode change.
	Obstacles []string `json:"obstacles,omitempty"`
	// Devices lists the devices in use, once for each owner.
	Devices []Device `json:"devices,omitempty"`
	// Errors say what could not be read.
	Errors []string `json:"errors,omitempty"`
}

// Device is a device of a GPU and one of its owners.
type Device struct {
	Name string `json:"name"`
	UUID string `json:"uuid,omitempty"`
	// Owner is the claim with its pods, or says that Tranche did not create the partition.
	Owner string `json:"owner"`
}

func (r Report) writeText(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, g := range r.GPUs {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s: %s\n", g.Name, cmp.Or(g.Problem, "healthy"))
		for _, o := range g.Obstacles {
			fmt.Fprintf(out, "  cannot be allocated now: %s\n", o)
		}
		for _, err := range g.Errors {
			fmt.Fprintf(out, "  cannot be read: %s\n", err)
		}
		if len(g.Devices) > 0 {
			fmt.Fprintln(out, "  DEVICE\tUUID\tOWNER")
		}
		for _, d := range g.Devices {
			fmt.Fprintf(out, "  %s\t%s\t%s\n", d.Name, cmp.Or(d.UUID, "-"), d.Owner)
		}
	}
	return out.Flush()
}
