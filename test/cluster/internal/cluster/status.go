package cluster

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Status prints the machines and their processes.
func (c *Cluster) Status(out io.Writer) error {
	machines := c.machines()
	if len(machines) == 0 {
		return fmt.Errorf("no cluster in %s: `cluster up` starts one", c.dir)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MACHINE\tPROCESS\tPID\tSTATE\tSINCE")
	for _, machine := range machines {
		processes, err := machine.Processes()
		if err != nil {
			fmt.Fprintf(table, "%s\t-\t-\tdoes not run\t-\n", machine.Name)
			continue
		}
		for _, process := range processes {
			state, since := "running", process.Started
			if !process.Running {
				state, since = process.Exit, process.Ended
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", machine.Name, process.Name, process.Pid, state, time.Since(since).Round(time.Second))
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nKUBECONFIG=%s\n", c.Kubeconfig())
	return nil
}
