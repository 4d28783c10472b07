package web

import (
	"context"
	"net/http"
	"strings"
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

var errNotThere = &RefusedError{Status: http.StatusNotFound, Title: "There is no such page", Text: "The node, GPU or pod may be gone."}

// page makes the page of a path.
func (s *Server) page(ctx context.Context, c scope, path string) (*page, error) {
	if !c.Complete {
		return &page{title: "Reading", blocks: []block{{whole: message(&RefusedError{Title: "Reading the cluster …", Text: "The page appears when all objects have been read."})}}}, nil
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
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
	case parts[0] == "pending" && len(parts) == 3:
		return s.why(ctx, c, parts[1], parts[2])
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
	p.blocks = append(p.blocks, block{whole: gaps(c.Viewer.Gaps(c.Snapshot))})
	return p, nil
}
