package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
)

func (c *claims) reconcile(ctx context.Context) {
	c.report(ctx, c.Reconcile(ctx, c.getClaim))
	if err := c.removeOrphanMetadata(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot remove the metadata of deleted claims, which is retried")
	}
}

// getClaim implements claim.GetClaim.
func (c *claims) getClaim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	found, err := c.client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, err
}

func (c *claims) report(ctx context.Context, findings []claim.Finding) {
	for _, f := range findings {
		c.metrics.Finding(f.Reason, f.Err)
		message := f.Message
		if f.Err != nil {
			message += fmt.Sprintf(": %v", f.Err)
		}
		c.events.Warn(ctx, f.Reason, message)
	}
}

// removeOrphanMetadata removes files that the kubeletplugin helper has written for claims that
// are gone. The helper does that only when the kubelet releases them.
func (c *claims) removeOrphanMetadata(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(c.CDIDir, names.DriverName+"_metadata_*.json"))
	if err != nil {
		return fmt.Errorf("list the CDI files of metadata: %w", err)
	}
	folders, err := filepath.Glob(filepath.Join(c.DataDir(), "dra-device-metadata", "*_*"))
	if err != nil {
		return fmt.Errorf("list the metadata: %w", err)
	}
	byClaim := map[types.UID][]string{}
	var uids []types.UID
	for _, file := range files {
		if uid, ok := cdi.MetadataClaim(file); ok {
			byClaim[uid] = append(byClaim[uid], file)
			uids = append(uids, uid)
		}
	}
	forgotten, err := c.Forgotten(ctx, uids)
	if err != nil {
		return err
	}
	var errs []error
	for _, uid := range forgotten {
		for _, file := range byClaim[uid] {
			if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	held := map[string]bool{}
	for _, ref := range c.holdingClaims() {
		held[ref.Namespace+"_"+ref.Name] = true
	}
	for _, folder := range folders {
		if !held[filepath.Base(folder)] {
			errs = append(errs, os.RemoveAll(folder))
		}
	}
	return errors.Join(errs...)
}
