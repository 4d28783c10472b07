package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/tranche-dev/tranche/test/cluster/internal/machine"
)

// wait calls condition until it is met. It gives up at once when a process of
// the machines has ended, which would never meet it, and shows that process's
// log.
func (c *Cluster) wait(ctx context.Context, what string, timeout time.Duration, condition func(context.Context) error, machines ...machine.Machine) error {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for round := 0; ; round++ {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if round%5 == 0 {
			if err := c.checkProcesses(machines); err != nil {
				return fmt.Errorf("wait for %s: %w", what, err)
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			if caller.Err() != nil {
				return fmt.Errorf("wait for %s: interrupted", what)
			}
			return fmt.Errorf("wait for %s: not within %s: %w (logs are in %s)", what, timeout, err, c.path("logs"))
		}
	}
}

// checkProcesses is an error if any process of the machines has ended.
func (c *Cluster) checkProcesses(machines []machine.Machine) error {
	for _, one := range machines {
		processes, err := one.Processes()
		if err != nil {
			return err
		}
		for _, process := range processes {
			if !process.Running {
				return fmt.Errorf("%s %s; %s", process.Name, process.Exit, logTail(c.logFile(process.Name), 15))
			}
		}
	}
	return nil
}
