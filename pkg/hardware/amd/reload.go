package amd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// refcntFile counts who keeps the module in the kernel: opened device nodes and
	// other modules.
	refcntFile = moduleDir + "/refcnt"
	holdersDir = moduleDir + "/holders"
)

// unknownUsers is said of users that neither KFD nor the kernel's modules name.
const unknownUsers = "who does is not to be seen: look with lsof /dev/kfd /dev/dri/* on the node, end them, and this is tried again"

// users says who keeps the driver from being taken out; empty if nobody does.
func (t *task) users() (string, error) {
	count, err := t.optional(refcntFile)
	if err != nil {
		return "", err
	}
	all, err := t.kfdUsers()
	if err != nil {
		return "", err
	}
	holders, err := t.list(holdersDir)
	if err != nil && !absent(err) {
		return "", err
	}
	var who []string
	if len(all) > 0 {
		who = append(who, fmt.Sprintf("%s %s KFD", names(all), use(all)))
	}
	for _, name := range holders {
		who = append(who, fmt.Sprintf("the kernel module %s uses it", name))
	}
	switch {
	case len(who) > 0:
		return strings.Join(who, " and ") + "; once they have ended or moved this is tried again", nil
	case count != "" && count != "0":
		return "its count of users is " + count + "; " + unknownUsers, nil
	}
	return "", nil
}

// kfdUsers are the processes that use KFD on any card.
func (t *task) kfdUsers() ([]process, error) {
	pids, err := t.list(processDir)
	if absent(err) {
		return nil, nil
	}
	var all []process
	for _, name := range pids {
		if pid, err := strconv.Atoi(name); err == nil {
			p := process{pid: pid}
			p.name, _ = t.read(path.Join("/proc", name, "comm"))
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b process) int { return a.pid - b.pid })
	return all, err
}

// awaitBack waits until every card that was there can be used again: amdgpu drives
// it, its modes can be read, and where it had a node in KFD's topology it has one, with
// its device nodes. A card that is reset by the load answers EPERM meanwhile.
func (m *memorySwitch) awaitBack(ctx context.Context) error {
	deadline := time.Now().Add(m.driver.cfg.ReloadPatience)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory mode %s: amdgpu was loaded anew, and then time was up before the cards could be looked at: %w", m.want, err)
	}
	for {
		var missing []error
		for _, c := range m.cards {
			if err := c.back(); err != nil {
				missing = append(missing, err)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		if time.Now().Add(backPause).After(deadline) || sleep(ctx, backPause) != nil {
			return fmt.Errorf("memory mode %s: amdgpu was loaded anew, and %d of %d cards did not come back: %w",
				m.want, len(missing), len(m.cards), errors.Join(append(missing, ctx.Err())...))
		}
	}
}

// back says why a card cannot be used yet.
func (c *memoryCard) back() error {
	if err := c.bound(); err != nil {
		return err
	}
	if c.cut {
		if _, err := c.memoryMode(); err != nil {
			return err
		}
		if mode, err := c.mode(); err != nil {
			return err
		} else if mode == "" {
			return fmt.Errorf("card %s: amdgpu has no %s for it", c.pciAddress, computeFile)
		}
	}
	if !c.computes {
		return nil
	}
	l, err := c.look()
	if err != nil {
		return err
	}
	if len(l.nodes()) == 0 {
		return c.withoutKFD()
	}
	for _, p := range l.partitions {
		if p.node == nil {
			continue // fenced by Obstacles
		}
		if missing, err := c.missingDevice(p); err != nil {
			return err
		} else if missing != nil {
			return missing
		}
	}
	return nil
}
