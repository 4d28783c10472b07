package amd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware/xcp"
)

const (
	// firstRetry is the pause after the first refusal of a card in use, lastRetry
	// the longest.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 2 * time.Second
	// lookPause is the time between two looks for a node that is not there yet.
	lookPause = 20 * time.Millisecond
	// nodePatience is how long a KFD node may take that its mode should have.
	// amdgpu makes the nodes before the write of the mode returns.
	nodePatience = time.Second
	// devicePatience is how long a device node in /dev may take, which somebody
	// else makes (udev).
	devicePatience = 20 * time.Second
)

// Create makes sure that the card is in the mode of the placement and that the
// partition can be used. A card that is in the mode already is left alone; so an
// attempt that was cut short anywhere is finished by the next. See
// claim.Hardware.
func (d *Driver) Create(ctx context.Context, p gpu.Placement) (gpu.Partition, error) {
	want, err := modeOf(p)
	if err != nil {
		return gpu.Partition{}, err
	}
	return onCard(ctx, d, p.GPU, func(c *card) (gpu.Partition, error) {
		now, err := c.mode()
		if err != nil {
			return gpu.Partition{}, err
		}
		if now != want {
			if err := c.switchTo(now, want); err != nil {
				return gpu.Partition{}, err
			}
		}
		found, err := c.await(want, p.Start)
		if err != nil {
			return gpu.Partition{}, err
		}
		if p.Type == gpu.TypeXCP {
			return c.partition(want, found), nil
		}
		uuid, err := c.uuid()
		return gpu.Partition{
			GPU: p.GPU, Type: p.Type, Profile: p.Profile, UUID: uuid,
			Complete: true, ID: renderName(found.node.minor),
		}, err
	})
}

// Destroy does nothing: the mode stays after a release, and whoever needs
// another switches.
func (d *Driver) Destroy(context.Context, gpu.Placement) error { return nil }

// modeOf is the mode that a placement needs, empty for a card without modes.
func modeOf(p gpu.Placement) (xcp.Mode, error) {
	if p.Type == gpu.TypeGPU && p.Profile == "" {
		return "", nil
	}
	mode, ok := xcp.ModeOf(p.Profile)
	if !ok || p.Type != gpu.TypeXCP && p.Type != gpu.TypeGPU || (p.Type == gpu.TypeGPU) != (mode == xcp.SPX) {
		return "", fmt.Errorf("placements of type %q with profile %q are not AMD's", p.Type, p.Profile)
	}
	return mode, nil
}

// switchTo puts the card into another mode and reads it back.
func (c *card) switchTo(now, want xcp.Mode) error {
	if err := c.checkOffer(now, want); err != nil {
		return err
	}
	if err := c.writeMode(want); err != nil {
		return err
	}
	got, err := c.mode()
	if err != nil {
		return fmt.Errorf("read back whether the card is in %s now: %w", want, err)
	}
	if got != want {
		return fmt.Errorf("card %s: amdgpu took mode %s without an error, but the card is in %s; nothing was changed for others, this is tried again; if it stays so, look for amdgpu in dmesg", c.pciAddress, want, got)
	}
	c.driver.cfg.Logger.V(2).Info("Switched the compute mode of a card", "card", c.pciAddress, "from", now, "to", want)
	return nil
}

// checkOffer refuses a mode that the card does not have as it is now, which the
// kernel refuses too, without a reason.
func (c *card) checkOffer(now, want xcp.Mode) error {
	if now == "" {
		return fmt.Errorf("card %s cannot be cut: amdgpu has no %s for it", c.pciAddress, computeFile)
	}
	memory, err := c.memoryMode()
	if err != nil {
		return err
	}
	l, err := c.look()
	if err != nil {
		return err
	}
	offer, err := c.modes(now, memory, l.nodes())
	if err != nil {
		return err
	}
	if slices.Contains(offer, want) {
		return nil
	}
	texts := make([]string, len(offer))
	for i, m := range offer {
		texts[i] = string(m)
	}
	return fmt.Errorf("card %s cannot be put into mode %s: in memory mode %s it has %s; if the memory mode was changed, what the card offers is published anew and the pod can be deleted to be scheduled again",
		c.pciAddress, want, memory, strings.Join(texts, ", "))
}

// writeMode asks for the mode until the card is free or patience ends. The
// kernel's answer counts: KFD's list of processes says who is in the way, but not
// whether one is.
func (c *card) writeMode(want xcp.Mode) error {
	deadline := time.Now().Add(c.driver.cfg.BusyPatience)
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := c.write(c.file(computeFile), string(want))
		switch {
		case err == nil:
			c.learnFromSuccess()
			return nil
		case !errors.Is(err, unix.EBUSY):
			return c.explainWrite(want, err)
		}
		if time.Now().Add(pause).After(deadline) {
			return c.explainBusy(want, err)
		}
		// The end of the caller's time comes with who was in the way, too.
		if limit, ok := c.Context().Deadline(); ok && time.Now().Add(pause).After(limit) {
			return c.explainBusy(want, err)
		}
		if err := c.Sleep(pause); err != nil {
			return fmt.Errorf("card %s: wait until it can be put into mode %s: %w", c.pciAddress, want, err)
		}
	}
}

// explainWrite says what the kernel means and what to do.
func (c *card) explainWrite(want xcp.Mode, err error) error {
	switch {
	case absent(err), errors.Is(err, unix.ENODEV):
		return c.gone(err)
	case errors.Is(err, unix.EPERM):
		return c.told(err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EROFS):
		return fmt.Errorf("%w (the plugin must run as root and see /sys writable)", err)
	case errors.Is(err, unix.EIO):
		return fmt.Errorf("%w (KFD could not be started again on the card: look for kfd in dmesg; if the next try fails too, load amdgpu anew or reboot the node)", err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w (amdgpu refuses mode %s: the memory mode was changed meanwhile, or another switch is under way; this is tried again)", err, want)
	}
	return err
}

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

// await waits until the partition of the mode has its KFD node and its device
// node. Other partitions that are missing do not matter: they are fenced by
// Obstacles.
func (c *card) await(want xcp.Mode, index int) (partition, error) {
	start := time.Now()
	for {
		found, missing, err := c.find(want, index)
		if err != nil || missing == nil {
			return found, err
		}
		patience := devicePatience
		if found.node == nil {
			patience = nodePatience
		}
		if time.Since(start) > patience || c.Sleep(lookPause) != nil || c.Context().Err() != nil {
			return partition{}, missing
		}
	}
}

// find looks for the partition. missing says what it still lacks.
func (c *card) find(want xcp.Mode, index int) (found partition, missing, err error) {
	now, err := c.mode()
	if err != nil {
		return found, nil, err
	}
	if now != want {
		return found, nil, fmt.Errorf("card %s: it was put into mode %s by somebody else while it was to be in %s; this is tried again", c.pciAddress, now, want)
	}
	l, err := c.fresh()
	if err != nil {
		return found, nil, err
	}
	if index < 0 || index >= len(l.partitions) {
		return found, nil, fmt.Errorf("card %s: mode %s has %d partitions and none with index %d", c.pciAddress, want, len(l.partitions), index)
	}
	found = l.partitions[index]
	if found.node == nil {
		return found, c.missingNode(l, index), nil
	}
	if missing, err = c.missingDevice(found); missing == nil && err == nil {
		c.reportShortfall(l)
	}
	return found, missing, err
}

// fresh is what the card is by a topology that was read just now.
func (c *card) fresh() (live, error) {
	top, err := c.driver.readTopology(c.task)
	if err != nil {
		return live{}, err
	}
	return c.live(top)
}

// missingNode says that KFD does not have a partition that the mode should have.
func (c *card) missingNode(l live, index int) error {
	if len(l.nodes()) == 0 {
		return c.withoutKFD()
	}
	return fmt.Errorf("card %s: %s", c.pciAddress, shortfall(l, index))
}

// shortfall is also the reason of an obstacle. Of the causes this one has been
// seen: https://instinct.docs.amd.com, "MI300X troubleshooting".
func shortfall(l live, index int) string {
	return fmt.Sprintf("KFD has only %d of the %d partitions of mode %s, and not that with index %d; does another graphics driver (ast, of the board's own display) hold a DRM device that the partition would need? Unload it and load amdgpu anew",
		len(l.nodes()), len(l.partitions), l.mode, index)
}

// missingDevice says that a device node is not in /dev yet.
func (c *card) missingDevice(p partition) (missing, err error) {
	if err := c.checkMinor(p); err != nil {
		return nil, err
	}
	for _, name := range devicePaths(p) {
		if _, err := c.stat(name); absent(err) {
			return fmt.Errorf("card %s: there is no device node %s; is udev at work?", c.pciAddress, name), nil
		} else if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// reportShortfall tells the log that partitions are missing beside the one that
// was wanted.
func (c *card) reportShortfall(l live) {
	if missing := l.missing(); len(missing) > 0 {
		c.driver.cfg.Logger.Info("A card has fewer partitions than its mode should have", "card", c.pciAddress, "mode", l.mode, "missing", missing)
	}
}
