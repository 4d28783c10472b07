package overview

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Room is what fits now of a kind of devices.
type Room struct {
	Kind Kind
	// Share is the share that was asked for, nil if it is another kind.
	Share *Ask
	// Known: some GPU offers the kind, or a class selects it. If not, Shared reports whether any GPU
	// has shares.
	Known, Shared bool
	// Wrong is why what was typed is no share, Never why no GPU could give it.
	Wrong, Never string
	// Count is how many more fit on all nodes, if nothing else is allocated.
	Count int
	// Places are the nodes with room, those with the most first.
	Places []Place
	// Partitions are the kinds that have about the memory of a share or more, and how many of them fit: the
	// smallest first.
	Partitions []cluster.Fit
	// Uncertain: not all claims are known, so nothing is counted.
	Uncertain bool
	// Claim is a ResourceClaimTemplate and a pod that asks for it.
	Claim string
}

// Place is a node with room.
type Place struct {
	Node  string
	Count int
}

// KindOf finds a kind by what a person typed.
func (s *Snapshot) KindOf(typed string) (Kind, bool) {
	typed = strings.ToLower(strings.TrimSpace(typed))
	if typed == "gpu" || typed == "whole" {
		typed = cluster.WholeGPU
	}
	for _, k := range s.Kinds {
		if strings.ToLower(k.Label) == typed {
			return k, true
		}
	}
	return Kind{Label: typed}, false
}

// RoomFor counts how often a kind, or a share of an amount, fits now.
func RoomFor(s *Snapshot, typed string) Room {
	kind, known := s.KindOf(typed)
	r := Room{Kind: kind, Known: known, Uncertain: s.Partial}
	r.Shared = slices.ContainsFunc(s.Kinds, func(k Kind) bool { return k.By != "" })
	fits := func(g *cluster.GPU) (n int) {
		for _, f := range g.Fits {
			if f.Label == kind.Label {
				n += f.Count
			}
		}
		return n
	}
	if !known || kind.By != "" {
		ask, share, err := ParseAsk(typed)
		switch {
		case err != nil:
			r.Wrong = err.Error()
			return r
		case share:
			r.Share = &ask
			r.Kind, r.Known = s.KindOf(ask.Label())
			fits = ask.fits
			r.partitions(s)
		}
	}
	if !r.Known {
		return r
	}
	if r.Share != nil && !r.Uncertain {
		if r.Never = r.Share.never(s); r.Never != "" {
			return r
		}
	}
	r.count(s, fits)
	r.Claim = claim(r.Kind, r.Share)
	return r
}

func (r *Room) count(s *Snapshot, fits func(*cluster.GPU) int) {
	for _, n := range s.Nodes {
		if !n.TakesPods() {
			continue
		}
		p := Place{Node: n.Name}
		for i := range n.GPUs {
			p.Count += fits(&n.GPUs[i])
		}
		if p.Count > 0 {
			r.Count += p.Count
			r.Places = append(r.Places, p)
		}
	}
	slices.SortStableFunc(r.Places, func(a, b Place) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Node, b.Node))
	})
}

// nearly is a little less than an amount: 2g.20gb has 19.6 GiB.
func nearly(amount int64) cluster.Bytes { return cluster.Bytes(amount / 10 * 9) }

// partitions counts what could take the place of a share that asks for nothing but memory of a GPU.
func (r *Room) partitions(s *Snapshot) {
	if r.Uncertain || *r.Share != (Ask{By: gpu.ByMemory, Amount: gpu.Amount{Memory: r.Share.Memory}}) || r.Share.Memory == 0 {
		return
	}
	for _, n := range s.Nodes {
		if !n.TakesPods() {
			continue
		}
		for _, g := range n.GPUs {
			for _, f := range cluster.Plain(g.Fits) {
				if f.Memory < nearly(r.Share.Memory) {
					continue
				}
				if known := lists.Find(r.Partitions, func(o *cluster.Fit) bool { return o.Label == f.Label && o.Memory == f.Memory }); known != nil {
					known.Count += f.Count
				} else {
					r.Partitions = append(r.Partitions, f)
				}
			}
		}
	}
	slices.SortStableFunc(r.Partitions, func(a, b cluster.Fit) int {
		return cmp.Or(cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Label, b.Label))
	})
}

var unfit = regexp.MustCompile(`[^a-z0-9]+`)

// claim returns a template and a pod, to copy.
func claim(k Kind, share *Ask) string {
	name, capacity := k.Label, ""
	if share != nil {
		name = "share " + strings.TrimSuffix(share.String(), ", of a GPU")
		capacity = share.capacity()
	}
	name = strings.Trim(unfit.ReplaceAllString(strings.ToLower(name), "-"), "-")
	class, selector := k.selection()
	if selector != "" {
		selector = "            selectors:\n              - cel:\n                  expression: >-\n                    " + selector + "\n"
	}
	return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata:\n  name: " + name + `
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: ` + class + "\n" + capacity + selector + `---
apiVersion: v1
kind: Pod
metadata:
  name: example
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: busybox:1.35
      command: [sh, -c, "ls -l /dev; sleep 1000000"]
      resources:
        claims:
          - name: gpu
  resourceClaims:
    - name: gpu
      resourceClaimTemplateName: ` + name + "\n"
}

// selection returns the class that selects the kind, or one of the chart and a selector.
func (k Kind) selection() (class, selector string) {
	equals := func(attribute, value string) string {
		return fmt.Sprintf("device.attributes[%q].?%s.orValue(\"\") == %q", names.DriverName, attribute, value)
	}
	switch {
	case k.Class != "":
		return k.Class, ""
	case k.By != "" && k.Profile != "":
		return "gpu-partition-" + k.By.Word() + "-share.tranche.dev", equals("profile", k.Profile)
	case k.By != "":
		return "gpu-" + k.By.Word() + "-share.tranche.dev", ""
	case k.Attribute != "":
		return "gpu-partition.tranche.dev", equals(k.Attribute, k.Value)
	}
	return names.DriverName, ""
}
