package view

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Room is what fits now of a kind of devices.
type Room struct {
	Kind Kind
	// Known: some GPU offers the kind, or a class selects it.
	Known bool
	// Count is how many more fit on all nodes, if nothing else is allocated.
	Count int
	// Places are the nodes with room, those with the least first: they keep large pieces
	// elsewhere.
	Places []Place
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

// RoomFor counts how often a kind fits now.
func RoomFor(s *Snapshot, typed string) Room {
	kind, known := s.KindOf(typed)
	r := Room{Kind: kind, Known: known, Uncertain: s.Partial}
	if !known {
		return r
	}
	for _, n := range s.Nodes {
		if !n.TakesPods() {
			continue
		}
		p := Place{Node: n.Name}
		for i := range n.GPUs {
			for _, f := range n.GPUs[i].Fits {
				if f.Label == kind.Label {
					p.Count += f.Count
				}
			}
		}
		if p.Count > 0 {
			r.Count += p.Count
			r.Places = append(r.Places, p)
		}
	}
	slices.SortStableFunc(r.Places, func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.Count, b.Count), cmp.Compare(a.Node, b.Node))
	})
	r.Claim = claim(kind)
	return r
}

var unfit = regexp.MustCompile(`[^a-z0-9]+`)

// claim is a template and a pod, to copy.
func claim(k Kind) string {
	name := strings.Trim(unfit.ReplaceAllString(strings.ToLower(k.Label), "-"), "-")
	class, selector := k.Class, ""
	if class == "" {
		class = gpu.DriverName
		if k.Attribute != "" {
			class = "gpu-partition.tranche.dev"
			selector = fmt.Sprintf("            selectors:\n              - cel:\n                  expression: >-\n                    device.attributes[%q].?%s.orValue(\"\") == %q\n", gpu.DriverName, k.Attribute, k.Value)
		}
	}
	return "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata:\n  name: " + name + `
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: ` + class + "\n" + selector + `---
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
