"""Average precision by the books: VOC's devkit as loops, COCO's by pycocotools."""

import contextlib
import io

import numpy as np

RECALLS = np.arange(0.0, 1.1, 0.1)  # as py-faster-rcnn has them


def iou(a, b):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    inner = width * height
    return inner / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inner)


def voc_ap(images, label):
    """(AP by area, AP at 11 points) of one class; `images` are (Detections, Truth)."""
    rows, objects = [], 0
    for number, (found, truth) in enumerate(images):
        objects += sum(1 for k, own in enumerate(truth.labels) if own == label and not truth.ignored[k])
        rows += [(-s, number, k) for k, s in enumerate(found.scores) if found.labels[k] == label]
    taken, right, wrong, curve = set(), 0, 0, []
    for _, number, k in sorted(rows, key=lambda row: row[0]):
        found, truth = images[number]
        best, place = -1.0, -1
        for j, own in enumerate(truth.labels):
            if own == label and iou(found.boxes[k], truth.boxes[j]) > best:
                best, place = iou(found.boxes[k], truth.boxes[j]), j
        if best >= 0.5 and truth.ignored[place]:
            continue
        if best >= 0.5 and (number, place) not in taken:
            taken.add((number, place))
            right += 1
        else:
            wrong += 1
        curve.append((right / objects, right / (right + wrong)))
    eleven = sum(max([p for r, p in curve if r >= t], default=0.0) for t in RECALLS) / 11
    area, before = 0.0, 0.0
    for k, (recall, _) in enumerate(curve):
        area += (recall - before) * max(p for _, p in curve[k:])
        before = recall
    return area, eleven


def coco_scores(photos, classes, evaluator="pycocotools"):
    """AP, AP50, AP75, small, medium, large by the reference library, and its precision array."""
    images = [{"id": number, "width": 1000, "height": 1000} for number in range(len(photos))]
    annotations, results = [], []
    for number, (found, truth) in enumerate(photos):
        for box, label, ignored in zip(truth.boxes, truth.labels, truth.ignored, strict=True):
            w, h = float(box[2] - box[0]), float(box[3] - box[1])
            annotations.append(
                {"id": len(annotations) + 1, "image_id": number, "category_id": int(label), "iscrowd": int(ignored)}
                | {"bbox": [float(box[0]), float(box[1]), w, h], "area": w * h}
            )
        for box, label, score in zip(found.boxes, found.labels, found.scores, strict=True):
            w, h = float(box[2] - box[0]), float(box[3] - box[1])
            own = {"image_id": number, "category_id": int(label), "score": float(score)}
            results.append(own | {"bbox": [float(box[0]), float(box[1]), w, h]})
    content = {"info": {}, "images": images, "annotations": annotations}
    content["categories"] = [{"id": k, "name": str(k)} for k in range(classes)]
    if evaluator == "pycocotools":
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    else:
        from faster_coco_eval import COCO
        from faster_coco_eval import COCOeval_faster as COCOeval
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = content
        truth.createIndex()
        run = COCOeval(truth, truth.loadRes(results), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return 100 * np.array(run.stats[:6])
