package web

import (
	"context"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/web/view"
)

// How many of a kind a page lists.
const (
	// Up to mostCards nodes are drawn as cards with the partitions of each GPU, up to mostNames
	// with their names.
	mostCards, mostNames = 12, 150
	mostPending          = 100
	mostMoving           = 50
	mostPlaces           = 25
)

// The data of templates.
type (
	ofNode struct {
		Base    string
		N       *view.Node
		Remarks []cluster.Remark
	}
	ofGPU struct {
		Base, Node string
		G          *cluster.GPU
		Usage      *view.Usage
		Rows       []row
	}
	row struct {
		Held cluster.Held
		Use  string
	}
	ofTotals struct {
		Base     string
		Totals   view.Totals
		Waiting  int
		Profiles bool
	}
	ofGroup struct {
		Base, ID, Density string
		Group             view.Group
		Items             []template.HTML
	}
	ofPending struct {
		Base         string
		Named        []cluster.Waiting
		Others, More int
	}
	ofPlans struct {
		Base   string
		Plans  []view.Rollout
		Hidden bool
	}
	ofFits struct {
		Base, Typed string
		Kinds       []view.Kind
		Room        view.Room
	}
)

var notThere = &Refusal{Status: http.StatusNotFound, Title: "There is no such page", Text: "The node, GPU or pod may be gone."}

// page makes the page of a path.
func (s *Server) page(ctx context.Context, c scope, path string) (*page, error) {
	if !c.Complete {
		return &page{title: "Reading", blocks: []block{{template: "message", data: &Refusal{Title: "Reading the cluster …", Text: "The page appears when all objects have been read."}}}}, nil
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var p *page
	var err error
	switch {
	case path == "/" || path == "":
		p = s.fleet(c)
	case parts[0] == "nodes" && len(parts) == 2:
		p, err = s.node(ctx, c, parts[1])
	case parts[0] == "nodes" && len(parts) == 3:
		p, err = s.gpu(ctx, c, parts[1], parts[2])
	case path == "/pending":
		p = s.pending(c)
	case parts[0] == "pending" && len(parts) == 3:
		return s.why(ctx, c, parts[1], parts[2])
	case path == "/rollouts":
		p = s.rollouts(c)
	case path == "/fits":
		p = s.fits(c)
	default:
		return nil, notThere
	}
	if err != nil {
		return nil, err
	}
	p.blocks = append(p.blocks, block{template: "gaps", data: c.Viewer.Gaps(c.Snapshot)})
	return p, nil
}

// fleet is the heat map.
func (s *Server) fleet(c scope) *page {
	totals := view.TotalsOf(c.Viewer, c.Snapshot)
	p := &page{title: "Fleet", nav: "Fleet", blocks: []block{{template: "totals", data: ofTotals{Base: s.Base, Totals: totals, Waiting: totals.Waiting, Profiles: !c.NoProfiles}}}}
	if len(c.Nodes) == 0 {
		p.blocks = append(p.blocks, block{template: "message", data: &Refusal{Title: "No node publishes GPUs yet", Text: "Does the plugin run on the nodes with GPUs?", Command: "kubectl get pods -A -o wide -l " + cluster.PluginLabel}})
		return p
	}
	density, name := "dense", "tile"
	switch n := len(c.Nodes); {
	case n <= mostCards:
		density, name = "cards", "nodecard"
	case n <= mostNames:
		density = "named"
	}
	if density != "cards" {
		p.blocks = append(p.blocks, block{template: "filter", data: []string{"free", "full", "switching", "problem", "blocked"}})
	}
	for i, g := range view.GroupsOf(c.Snapshot) {
		b := block{template: "mapgroup"}
		for _, n := range g.Nodes {
			b.items = append(b.items, item{n.Version, func() (template.HTML, error) { return s.tile(name, c.Viewer, n) }})
		}
		b.list = func(items []template.HTML) any {
			return ofGroup{Base: s.Base, ID: "map-" + strconv.Itoa(i), Density: density, Group: g, Items: items}
		}
		p.blocks = append(p.blocks, b)
	}
	return p
}

func (s *Server) node(ctx context.Context, c scope, name string) (*page, error) {
	n := c.Viewer.Node(c.Find(name))
	if n == nil {
		return nil, notThere
	}
	p := &page{title: name, nav: "Fleet", crumbs: []link{{"Fleet", "/"}, {Name: name}}}
	p.blocks = append(p.blocks, block{template: "nodehead", data: ofNode{Base: s.Base, N: n, Remarks: n.Remarks(c.now)}})
	usage, _ := s.usage(ctx, c, name)
	for i := range n.GPUs {
		g := ofGPU{Base: s.Base, Node: name, G: &n.GPUs[i]}
		if u, ok := usage[g.G.Name]; ok {
			g.Usage = &u
		}
		p.blocks = append(p.blocks, block{template: "noderow", data: g})
	}
	p.blocks = append(p.blocks, block{template: "history", data: n})
	return p, nil
}

func (s *Server) gpu(ctx context.Context, c scope, node, name string) (*page, error) {
	n := c.Viewer.Node(c.Find(node))
	if n == nil || n.GPU(name) == nil {
		return nil, notThere
	}
	g := ofGPU{Base: s.Base, Node: node, G: n.GPU(name)}
	usage, err := s.usage(ctx, c, node)
	use, reason := usage[name], "the node's plugin reports nothing about this GPU."
	if err != nil {
		reason = err.Error() + "."
	}
	for _, h := range g.G.Held {
		g.Rows = append(g.Rows, row{h, use.ByDevice[h.Device]})
	}
	p := &page{title: name + " on " + node, nav: "Fleet", crumbs: []link{{"Fleet", "/"}, {node, "/nodes/" + url.PathEscape(node)}, {Name: name}}}
	p.blocks = []block{{template: "gpuhead", data: g}, {template: "partitions", data: g}, {template: "usage", data: charts(use, reason, c.now)}}
	return p, nil
}

func (s *Server) usage(ctx context.Context, c scope, node string) (map[string]view.Usage, error) {
	if s.Usage == nil {
		return nil, errNoUsage
	}
	return s.Usage.Node(ctx, c.Viewer, node)
}

func (s *Server) pending(c scope) *page {
	named, others := c.Viewer.Waiting(c.Snapshot)
	data := ofPending{Base: s.Base, Named: named[:min(len(named), mostPending)], Others: others, More: max(0, len(named)-mostPending)}
	return &page{title: "Pending pods", nav: "Pending", blocks: []block{{template: "pending", data: data}}}
}

func (s *Server) rollouts(c scope) *page {
	p := &page{title: "Rollouts", nav: "Rollouts", blocks: []block{{template: "rollouts", data: ofPlans{Base: s.Base, Plans: c.Viewer.Rollouts(c.Snapshot), Hidden: c.NoPlans}}}}
	if !c.NoProfiles {
		switching, failed := view.Moving(c.Snapshot)
		p.blocks = append(p.blocks, block{template: "switches", data: map[string]any{
			"Base": s.Base, "Now": c.now,
			"Switching": switching[:min(len(switching), mostMoving)], "MoreSwitching": max(0, len(switching)-mostMoving),
			"Failed": failed[:min(len(failed), mostMoving)], "MoreFailed": max(0, len(failed)-mostMoving),
		}})
	}
	return p
}

func (s *Server) fits(c scope) *page {
	typed := c.query.Get("profile")
	data := ofFits{Base: s.Base, Typed: typed, Kinds: offered(c.Snapshot), Room: view.RoomFor(c.Snapshot, typed)}
	return &page{title: "What fits now", nav: "What fits", blocks: []block{{template: "fitsform", data: data}, {template: "fits", data: data}}}
}

// offered are the kinds without variants, for a short list.
func offered(c *view.Snapshot) []view.Kind {
	return slices.DeleteFunc(slices.Clone(c.Kinds), func(k view.Kind) bool { return cluster.BaseProfile(k.Label) != "" })
}
