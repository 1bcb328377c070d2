def render_privacy(statement, plan, *, manifest=None):
    return "<html></html>"
