"""The lessons: `python -m lessons` lists them, `python -m lessons tour` shows what there is."""

import sys

PICTURES = []  # (name, SVG) in the order in which a lesson has shown them


def show_svg(svg, name):
    """Show a picture: in a notebook itself, in a terminal its name, in the page `<name>.svg`."""
    PICTURES.append((name, svg))
    if "IPython" in sys.modules and "ipykernel" in sys.modules:
        from IPython.display import SVG, display

        display(SVG(svg))
    else:
        print(f"[picture: {name}]")


def bars(title, rows, unit=""):
    """Horizontal bars as SVG. rows: {label: number}, or {label: {part: number}} for stacked ones.

    >>> bars("bytes", {"rank 0": 3, "rank 1": 6}).count("<rect")
    2
    """
    from html import escape

    colours = ["#4c8dd6", "#e08a3c", "#56a868", "#b36ac2", "#c9b23e", "#8a8f98"]
    rows = {
        label: parts if isinstance(parts, dict) else {"": parts} for label, parts in rows.items()
    }
    names = list(dict.fromkeys(name for parts in rows.values() for name in parts))
    longest = max(sum(parts.values()) for parts in rows.values()) or 1
    left = 20 + 8 * max(map(len, rows))
    lines = [f'<text x="10" y="22" font-weight="bold">{escape(title)}</text>']
    for i, (label, parts) in enumerate(rows.items()):
        x, y = left, 38 + 26 * i
        lines.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
        for name, value in parts.items():
            width = 420 * value / longest
            colour = colours[names.index(name) % len(colours)]
            lines.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="20" fill="{colour}"/>'
            )
            x += width
        total = sum(parts.values())
        text = f"{total:,.0f}" if abs(total) >= 1000 else f"{total:.4g}"
        lines.append(f'<text x="{x + 6:.1f}" y="{y + 14}">{text} {escape(unit)}</text>')
    x, y = left, 38 + 26 * len(rows)
    for name, colour in zip(names, colours * len(names)):
        if name:
            lines.append(
                f'<circle cx="{x + 5}" cy="{y + 10}" r="5" fill="{colour}"/>'
                f'<text x="{x + 15}" y="{y + 14}">{escape(name)}</text>'
            )
            x += 30 + 8 * len(name)
    width, height = max(left + 520 + 8 * len(unit), x), y + (26 if names != [""] else 6)
    # Grey text is legible on white and on black.
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'font-family="sans-serif" font-size="14" fill="#76797f">\n'
        + "\n".join(lines)
        + "\n</svg>\n"
    )
