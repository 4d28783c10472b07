package overview

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/pkg/cluster"
)

// Product is a model of GPUs, and how many of them a node has.
type Product struct {
	Name  string
	Count int
}

// String is the product for people: "8 × H100".
func (p Product) String() string { return fmt.Sprintf("%d × %s", p.Count, p.Name) }

// ProductName is the name of a model of GPUs for people, also if the driver does not tell it.
func ProductName(name string) string { return cmp.Or(name, "GPU of unknown model") }

// ProductsOf are the models of a node's GPUs, in the order in which they come.
func ProductsOf(n *cluster.Node) []Product {
	var out []Product
	for i := range n.GPUs {
		name := ProductName(n.GPUs[i].ProductName)
		at := slices.IndexFunc(out, func(p Product) bool { return p.Name == name })
		if at < 0 {
			at = len(out)
			out = append(out, Product{Name: name})
		}
		out[at].Count++
	}
	return out
}

var gpuName = regexp.MustCompile(`^gpu-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])$`)

// ShortName is the PCI address of a GPU without the usual domain, or its name if that has none.
func ShortName(gpu string) string {
	return strings.TrimPrefix(gpuName.ReplaceAllString(gpu, "$1:$2:$3.$4"), "0000:")
}

// Taint is a taint as kubectl writes it: "key=value:effect".
func Taint(t *cluster.Taint) string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// Extent says which devices of a GPU have a taint.
func Extent(t *cluster.Taint) string {
	if t.Devices == t.Of {
		return "the whole GPU"
	}
	return fmt.Sprintf("%d of %d devices", t.Devices, t.Of)
}
