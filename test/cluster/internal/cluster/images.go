package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/test/cluster/internal/machine"
)

// Load imports an image archive into the given nodes, or all.
func (c *Cluster) Load(ctx context.Context, archive string, nodes []string) error {
	if len(nodes) == 0 {
		nodes = c.settings.Nodes
	}
	return atOnce(nodes, func(name string) error { return c.load(ctx, name, archive) })
}

func (c *Cluster) load(ctx context.Context, name, archive string) error {
	if _, err := c.node(name); err != nil {
		return err
	}
	machine, err := c.machine(name)
	if err != nil {
		return err
	}
	if err := c.importImages(ctx, machine, archive); err != nil {
		return fmt.Errorf("load %s: %w", archive, err)
	}
	c.say("%s: loaded %s", name, filepath.Base(archive))
	return nil
}

// importImages imports an archive. It goes through the standard input: the node
// may not see its path.
func (c *Cluster) importImages(ctx context.Context, node machine.Machine, archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close()
	return c.ctr(ctx, node, file, "images", "import", "--snapshotter="+c.snapshotterOf(node), "-")
}

func (c *Cluster) snapshotterOf(m machine.Machine) string {
	return node{name: m.Name, dir: m.Dir, cluster: c}.snapshotter()
}

// ctr runs containerd's own client on a node.
func (c *Cluster) ctr(ctx context.Context, node machine.Machine, in io.Reader, args ...string) error {
	var errs bytes.Buffer
	args = append([]string{c.settings.Parts.Program("ctr"), "--address=" + containerdSocket, "--namespace=k8s.io"}, args...)
	if err := node.Run(ctx, in, io.Discard, &errs, c.env(), args...); err != nil {
		return fmt.Errorf("ctr %s on %s: %w: %s", strings.Join(args[3:], " "), node.Name, err, lastLine(errs.String()))
	}
	return nil
}

// lastLine leaves out warnings that come before what went wrong.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

// awaitContainerd waits until containerd answers and has all images that a
// node starts with.
func (c *Cluster) awaitContainerd(ctx context.Context, node machine.Machine) error {
	err := c.wait(ctx, "containerd on "+node.Name, 3*time.Minute, func(ctx context.Context) error {
		return c.ctr(ctx, node, nil, "version")
	}, node)
	if err != nil {
		return err
	}
	for _, archive := range c.settings.Parts.Images() {
		if err := c.importImages(ctx, node, archive); err != nil {
			return err
		}
	}
	return nil
}
