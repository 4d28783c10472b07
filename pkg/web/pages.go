package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	h "maragu.dev/gomponents/html"

	"github.com/tranche-dev/tranche/pkg/cluster/overview"
)

// How many of a kind a page lists.
const (
	// Up to maxCards nodes are drawn as cards with the partitions of each GPU, up to maxNames
	// with their names.
	maxCards, maxNames = 12, 150
	maxPending         = 100
	maxMoving          = 50
	maxPlaces          = 25
)

var errNotThere = &RefusedError{Status: http.StatusNotFound, Title: "There is no such page", Text: "The node, GPU or pod may be gone."}

// parts returns the parts of a path.
func parts(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// prepare finds out what the page of a path needs: the viewer's rights in the namespaces that it
// names, the explanation of its pod, and what pods request of its node. It waits for the API server,
// so that page does not.
func (s *Server) prepare(ctx context.Context, c scope, path string) (scope, error) {
	if !c.Complete {
		return c, nil
	}
	parts := parts(path)
	switch {
	case parts[0] == "nodes" && len(parts) > 1:
		c.Learn(ctx, overview.HoldersOf(c.Find(parts[1])), nil)
		if len(parts) == 2 {
			var err error
			c.requested, err = s.requests(ctx, c, parts[1])
			return c, err
		}
	case path == "/pending":
		waiting := c.WaitingIn()
		c.Learn(ctx, waiting, waiting)
	case parts[0] == "pending" && len(parts) == 3:
		namespace, pod := parts[1], parts[2]
		c.Learn(ctx, []string{namespace}, []string{namespace})
		if !c.Sees(namespace) {
			return c, &RefusedError{Status: http.StatusForbidden, Title: "You may not see this pod", Text: fmt.Sprintf("You are not allowed to list pods and resourceclaims in the namespace %s.", namespace)}
		}
		var err error
		c.why, err = s.explain(ctx, c, namespace, pod)
		return c, err
	}
	return c, nil
}

// page makes the page of a path, for which prepare has prepared.
func (s *Server) page(c scope, path string) (*page, error) {
	if !c.Complete {
		return &page{title: "Reading", blocks: []block{{whole: message(&RefusedError{Title: "Reading the cluster …", Text: "The page appears when all objects have been read."})}}}, nil
	}
	parts := parts(path)
	var p *page
	var err error
	switch {
	case path == "/" || path == "":
		p = s.fleet(c)
	case parts[0] == "nodes" && len(parts) == 2:
		p, err = s.node(c, parts[1])
	case parts[0] == "nodes" && len(parts) == 3:
		p, err = s.gpu(c, parts[1], parts[2])
	case path == "/pending":
		p = s.pending(c)
	case c.why != nil:
		return s.why(c.why, parts[1], parts[2]), nil
	case path == "/rollouts":
		p = s.rollouts(c)
	case path == "/fits":
		p = s.fits(c)
	default:
		return nil, errNotThere
	}
	if err != nil {
		return nil, err
	}
	p.blocks = append(p.blocks, block{whole: h.Div(blockID("unread"), unread(append(c.Viewer.Unread(c.Snapshot), c.requested.unread...)))})
	return p, nil
}
