package amd

import (
	"fmt"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

// explainBusy says who keeps the card from being switched.
func (c *card) explainBusy(want xcp.Mode, cause error) error {
	who, err := c.who()
	if err != nil {
		who = processes{}
		c.driver.cfg.Logger.Info("Who uses a card cannot be read", "card", c.pciAddress, "reason", err.Error())
	}
	inUse := fmt.Errorf("%w: %w", gpu.ErrInUse, cause)
	switch {
	case len(who.card) > 0:
		return fmt.Errorf("card %s cannot be put into mode %s: %s %s it: %w; end or move them, this is tried again",
			c.pciAddress, want, names(who.card), use(who.card), inUse)
	case len(who.others) > 0:
		c.learnHostBusy()
		return fmt.Errorf("card %s cannot be put into mode %s: nobody uses it, but this kernel switches no card while any process of the host uses KFD, and %s %s: %w; end them or bring the node a newer amdgpu, this is tried again",
			c.pciAddress, want, names(who.others), does(who.others), inUse)
	}
	return fmt.Errorf("card %s cannot be put into mode %s: KFD still takes leave of a process that has ended, or its processes cannot be seen: %w; this is tried again",
		c.pciAddress, want, inUse)
}

func use(all []process) string {
	if len(all) == 1 {
		return "uses"
	}
	return "use"
}

func does(all []process) string {
	if len(all) == 1 {
		return "does"
	}
	return "do"
}

// who lists the processes of the card as it is now.
func (c *card) who() (processes, error) {
	l, err := c.look()
	if err != nil {
		return processes{}, err
	}
	return c.processes(l)
}

// learnHostBusy notes that the kernel counts all processes of the host. It is
// only told after the whole patience: a moment after the end of a process, a
// kernel that looks at the card alone refuses as well.
func (c *card) learnHostBusy() {
	if load, err := c.driver.LoadID(); err == nil {
		c.learn(func() { c.driver.hostBusy = load })
	}
}

// learnFromSuccess notes that the kernel does not count all processes of the
// host, if there are any.
func (c *card) learnFromSuccess() {
	if who, err := c.who(); err == nil && len(who.others) > 0 {
		c.learn(func() { c.driver.hostBusy = "" })
	}
}
